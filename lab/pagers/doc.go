// Package pagers measures what many clients get that read results in pages, while replicas of the
// gateway are restarted and memory is short. It has tests only.
package pagers
