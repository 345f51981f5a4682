"""Published models distributed in space, with seeded synthetic data."""
