"""Options: their declaration, check, forms, and the references in their values."""
