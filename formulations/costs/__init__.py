"""What every layer, transfer and collective costs, in integers."""
