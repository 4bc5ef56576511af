"""Shredding of master keys, so that data past their retention can never be read again: plan, deletion and proof."""
