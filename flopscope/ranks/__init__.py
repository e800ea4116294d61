"""Many ranks of a distributed program: each profile is reduced to what is asked across ranks, and then compared."""
