//go:build !race

package rest_test

const underRace = 1
