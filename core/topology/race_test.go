//go:build race

package topology_test

// raceFactor is how much slower the race detector may make what is measured.
const raceFactor = 20
