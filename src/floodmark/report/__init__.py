"""What people and machines are told: lag, checks of the guarantees, warnings."""
