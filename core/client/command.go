package client

import (
	"context"
	"errors"
	"strings"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/operation"
)

// RunCommand runs a command as it is. Nothing is checked, or inherited from the client. Only $db,
// maxTimeMS, the fields of the session and, if the OP_MSG rules require it, $readPreference are
// added. Fields that belong to the driver ($db, lsid, txnNumber, …) must not be in the command:
// they are sent as they are, and the server's behavior is undefined.
//
// If the command has a readConcern, no other is sent. In the first command of a transaction, and in
// a snapshot session, it replaces that of the session.
//
// maxTimeMS is what is left until the deadline. It is not added to a command that has its own,
// which the server then applies, nor to a getMore, where it means something else.
//
// A reply with ok: 1 is returned as it is, with any writeErrors in it; ok: 0 is a
// *mongoerr.CommandError. Without an answer the error is an *operation.OutcomeUnknownError, unless
// the command is known to only read.
func (c *Client) RunCommand(
	ctx context.Context, db string, cmd bson.Raw, opt RunCommandOptions,
) (bson.Raw, error) {
	reply, _, err := c.RunCommandOn(ctx, db, cmd, opt)
	return reply, err
}

// RunCommandOn does what RunCommand does, and also returns the server that has answered.
func (c *Client) RunCommandOn(
	ctx context.Context, db string, cmd bson.Raw, opt RunCommandOptions,
) (bson.Raw, address.Address, error) {
	ck := check{client: c}
	op, err := commandOperation(db, cmd, &opt.Common, commandOptions, &ck)
	if err != nil {
		return nil, "", err
	}
	res, err := c.run(ctx, &op, &opt.Common)
	if err != nil {
		return nil, "", withoutDoubt(err, cmd)
	}
	return res.Reply, res.Server, nil
}

// RunCursorCommand runs a command as RunCommand does, and returns the cursor of its reply. A reply
// without one is a *mongoerr.MalformedReplyError.
func (c *Client) RunCursorCommand(
	ctx context.Context, db string, cmd bson.Raw, opt RunCursorCommandOptions,
) (*cursor.Cursor, error) {
	ck := check{client: c}
	if opt.CursorType != NonTailable && opt.TimeoutMode == CursorLifetime {
		ck.refuse("timeoutMode", "must not be cursorLifetime for a tailable cursor")
	}
	if opt.BatchSize != nil && *opt.BatchSize < 0 {
		ck.refuse("batchSize", "is negative")
	}
	if opt.MaxTimeMS != nil && *opt.MaxTimeMS < 0 {
		ck.refuse("maxTimeMS", "is negative")
	}
	ck.await("maxTimeMS", opt.MaxTimeMS, c.timeout(&opt.Common))
	op, err := commandOperation(db, cmd, &opt.Common, commandOptions|takesComment, &ck)
	if err != nil {
		return nil, err
	}
	lifetime := opt.CursorType == NonTailable && opt.TimeoutMode != Iteration
	op.DeadlineAsMaxTime = op.DeadlineAsMaxTime && (lifetime || opt.CursorType == TailableAwait)
	cur, err := cursor.Open(ctx, &c.runner, op, cursor.Options{
		BatchSize: valueOf(opt.BatchSize), MaxAwaitTimeMS: opt.MaxTimeMS, Comment: opt.Comment,
		Timeout: opt.Timeout, Lifetime: lifetime,
	})
	return cur, withoutDoubt(err, cmd)
}

// ContinueCursor returns a cursor that continues from the state of another one, which may be of
// another client.
func (c *Client) ContinueCursor(s cursor.State) *cursor.Cursor {
	return cursor.Continue(&c.runner, s)
}

// commandOperation returns the operation of a command that a user wrote.
func commandOperation(
	db string, cmd bson.Raw, o *Common, t takes, ck *check,
) (operation.Operation, error) {
	ck.database(db)
	if cmd.IsEmpty() {
		ck.refuse("command", "is empty")
	}
	ck.common(o, t, nil)
	u := userCommand(cmd)
	return operation.Operation{
		Database: db, Name: "runCommand", Command: &u, Kind: operation.Generic,
		ReadPreference: o.ReadPreference, Session: o.session(),
		Relayed:           effectOf(cmd) == writesOutside,
		OwnReadConcern:    cmd.Has("readConcern"),
		DeadlineAsMaxTime: !cmd.Has("maxTimeMS") && !strings.EqualFold(u.Name(), "getMore"),
		RunOn:             o.RunOn, Caller: o.Caller,
	}, ck.err
}

// withoutDoubt returns the error without the unknown outcome if the command is known to only read.
func withoutDoubt(err error, cmd bson.Raw) error {
	unknown, ok := errors.AsType[*operation.OutcomeUnknownError](err)
	if ok && effectOf(cmd) == onlyReads {
		return unknown.Err
	}
	return err
}

// userCommand holds a command that a user wrote. It is sent unchanged.
type userCommand bson.Raw

func (u *userCommand) Name() string { return bson.Raw(*u).FirstKey() }

func (u *userCommand) Append(b *bson.Builder, _ operation.Target) error {
	b.AppendElements(bson.Raw(*u))
	return nil
}

// effect says what a command does to data.
type effect uint8

const (
	mayWrite effect = iota // also a command that is not known
	onlyReads
	// writesOutside is that of a command whose result another server may have to write.
	writesOutside
)

// effectOf returns the effect of a command, by its name and, where these matter, its arguments.
func effectOf(cmd bson.Raw) effect {
	name := strings.ToLower(cmd.FirstKey())
	var out bool
	switch name {
	case "aggregate":
		pipeline, _ := cmd.Lookup("pipeline")
		stages, _ := pipeline.Array()
		out = writesOutput(stages)
	case "mapreduce":
		inline, _ := cmd.Lookup("out", "inline")
		out = inline.IsZero()
	default:
		if _, ok := readingCommands[name]; !ok {
			return mayWrite
		}
	}
	if out {
		return writesOutside
	}
	return onlyReads
}

// readingCommands are those that only read, whatever their arguments are.
var readingCommands = map[string]struct{}{
	"ping":             {},
	"hello":            {},
	"ismaster":         {},
	"buildinfo":        {},
	"serverstatus":     {},
	"find":             {},
	"count":            {},
	"distinct":         {},
	"listdatabases":    {},
	"listcollections":  {},
	"listindexes":      {},
	"dbstats":          {},
	"collstats":        {},
	"connectionstatus": {},
	"getparameter":     {},
	"hostinfo":         {},
	"listcommands":     {},
	"replsetgetstatus": {},
	"usersinfo":        {},
	"rolesinfo":        {},
	"datasize":         {},
	"dbhash":           {},
	"getlog":           {},
	"getcmdlineopts":   {},
	"whatsmyuri":       {},
}
