package app

// NewWithLookup is New with a resolver for the names of other replicas.
var NewWithLookup = newApp
