package client

import (
	"context"

	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/seedlist"
)

// resolve makes the topology of a mongodb+srv string, with what DNS says of it now. The topology looks again later.
func (c *Client) resolve(ctx context.Context, cfg connstring.Config, opt Options) error {
	resolved, interval, err := seedlist.Resolve(ctx, opt.Resolver, cfg)
	if err != nil {
		return err
	}
	return c.watch(&resolved, opt, &seedlist.Poller{Resolver: opt.Resolver, Config: resolved, Interval: interval})
}
