"""Which machines: the search over a family of clusters, each closed by a bound or solved."""
