"""Rows of convolutions, pools, resampling and padding."""
