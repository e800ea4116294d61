"""Many ranks of a distributed program: each profile is reduced to a digest, and the digests are compared."""
