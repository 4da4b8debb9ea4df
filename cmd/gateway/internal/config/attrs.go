package config

import "log/slog"

// Attrs returns the options that were set, as the group options of a log record, without secrets.
func (c *Config) Attrs() slog.Attr {
	var attrs []any
	for _, v := range c.values {
		text := v.text
		switch {
		case v.source == fromDefault:
			continue
		case v.option.shown != nil:
			text = v.option.shown(c)
		case v.option.Secret:
			text = mask
		}
		attrs = append(attrs, slog.String(v.option.Name, text))
	}
	return slog.Group("options", attrs...)
}
