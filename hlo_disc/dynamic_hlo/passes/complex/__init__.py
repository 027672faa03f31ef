"""Complex numbers as pairs of real ones, before any schedule sees them."""
