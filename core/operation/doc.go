// Package operation runs commands: an Operation is data, and a Runner selects a server, checks a
// connection out, appends the command to a pooled buffer, makes the round trip and classifies the
// answer.
//
// It knows neither what a collection helper's options mean (core/client does) nor how cursors go
// on (core/cursor), and it holds no state between two operations.
package operation
