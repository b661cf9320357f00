"""Cluster, sort and decompose arrays that are split over the ranks, as in the tutorials of Heat."""

import heat as ht

data = ht.random.randn(400, 8, split=0)
clusters = ht.cluster.KMeans(n_clusters=3, init="kmeans++", max_iter=20).fit(data)
ht.sort(data, axis=0)
ht.linalg.qr(data)
scaled = (data - ht.mean(data, axis=0)) / ht.std(data, axis=0)
product = scaled.T @ scaled
ht.percentile(data, [25, 50, 75], axis=0)
ht.unique(ht.random.randint(0, 10, (500,), split=0), sorted=True)
