"""Changes as columns of Arrow, for data frames."""
