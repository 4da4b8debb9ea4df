// Package rolling measures what clients behind a load balancer see while replicas of the gateway
// are replaced, or one is killed. It has tests only.
package rolling
