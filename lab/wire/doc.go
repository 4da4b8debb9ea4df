// Package wire compares what Mooring's driver, the official Go driver and pymongo send for the same
// operations. It has tests only. differences.md explains each difference.
package wire
