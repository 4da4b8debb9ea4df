package client

import (
	"context"

	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/seedlist"
)

// resolve creates the topology of a mongodb+srv string from its current DNS records, which the
// topology polls later.
func (c *Client) resolve(ctx context.Context, cfg connstring.Config, opt Options) error {
	resolved, interval, err := seedlist.Resolve(ctx, opt.Resolver, cfg)
	if err != nil {
		return err
	}
	return c.watch(&resolved, opt,
		&seedlist.Poller{Resolver: opt.Resolver, Config: resolved, Interval: interval})
}
