"""What an estimation obtained: plain data, sentences, plots and reports, without the model.

Uses `numerics`. Data classes hold numbers and tables; plots and pages take these and nothing else.
"""
