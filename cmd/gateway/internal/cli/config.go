package cli

import "github.com/mooringdb/mooring/cmd/gateway/internal/config"

// showConfig runs the command config.
func showConfig(c call) error {
	cfg, err := config.Load(c.flags, c.environ)
	if err != nil {
		return err
	}
	return cfg.WriteEffective(c.stdout)
}

// showSchema runs the command config schema.
func showSchema(c call) error { return config.WriteSchema(c.stdout) }
