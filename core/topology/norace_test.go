//go:build !race

package topology_test

const raceFactor = 1
