"""A problem file to start from, written from the user's own tables: `igpe new`."""
