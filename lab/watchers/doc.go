// Package watchers measures what change streams cost the gateway, and checks that other calls are
// served beside as many of them as there may be. It has tests only.
package watchers
