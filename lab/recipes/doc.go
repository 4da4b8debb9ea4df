// Package recipes runs what the pages of docs/ tell their readers to do beside the gateway: nginx
// before it, a key for each tenant, docker compose. It has tests only. Package lines pastes single
// commands.
package recipes
