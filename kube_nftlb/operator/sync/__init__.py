"""Workers that compare the farms wanted with those that exist, and write the difference."""
