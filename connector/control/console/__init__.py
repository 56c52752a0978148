"""What the pages of the console show, as JSON documents."""
