// Package changes shows that clients of change streams miss nothing and get nothing twice, whatever
// happens to their connections and to the replicas of the gateway. It has tests only.
package changes
