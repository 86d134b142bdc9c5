"""Plans found fast, without proof."""
