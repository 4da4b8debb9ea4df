// Package recipes runs what the pages of docs/ tell their readers to do beside the gateway: nginx
// before it, and a key for each tenant. It has tests only. Package lines pastes single commands.
package recipes
