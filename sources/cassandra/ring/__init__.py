"""The ring: nodes, tokens, replica groups, splits and log slots."""
