"""Console scripts, one file each; nothing imports them."""
