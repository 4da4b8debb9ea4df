// Package metrics checks the gateway's metrics under load, and the dashboard's queries on a real
// Prometheus. It has only tests.
package metrics
