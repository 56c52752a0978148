"""For consumers: the newest row of each key, kept by a Faust app. Needs the extra `faust`."""
