"""What tests of stores share."""
