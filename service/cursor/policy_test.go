package cursor_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/servicetest"
)

func rules(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCursorsAreDecidedAgain replaces the rules while cursors are open. The next page, as a page or
// as a stream, is refused if its client would not be allowed the same any more. It may close the
// cursor, and goes on if the rules come back.
func TestCursorsAreDecidedAgain(t *testing.T) {
	const wide = `@commands("find") permit (principal, action, resource);`
	e := policy.NewEnforcer(policy.Config{Policy: rules(t, wide)})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{Policy: e})
	g.Server.SetDocuments("d.c", servicetest.Docs(20, 1)...)
	size := new(int32(2))
	ada := servicetest.As(t.Context(), "key:ada")
	next := func(token string) (string, error) {
		page, err := g.Cursor.NextPage(ada,
			&mooringv1.NextPageRequest{Cursor: token, BatchSize: size})
		return page.GetCursor(), err
	}
	for name, open := range map[string]func() (string, error){
		"Find": func() (string, error) {
			page, err := g.Document.Find(ada,
				&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: size})
			return page.GetCursor(), err
		},
		"Aggregate": func() (string, error) {
			page, err := g.Document.Aggregate(ada,
				&mooringv1.AggregateRequest{Database: "d", Collection: new("c"), BatchSize: size})
			return page.GetCursor(), err
		},
		"RunCursorCommand": func() (string, error) {
			page, err := g.Command.RunCursorCommand(ada, &mooringv1.RunCursorCommandRequest{
				Database: "d", Command: servicetest.JSON(`{"find": "c", "batchSize": 2}`),
				BatchSize: size,
			})
			return page.GetCursor(), err
		},
	} {
		e.Replace(rules(t, wide))
		token, err := open()
		if err != nil {
			t.Fatal(name, err)
		}
		for what, text := range map[string]string{
			"a forbid":     wide + `forbid (principal, action, resource == Collection::"d.c");`,
			"a limit":      `@hidden("x") permit (principal, action, resource in Database::"d");`,
			"no principal": `@commands("find") permit (principal == Principal::"key:bob", action, resource);`,
		} {
			e.Replace(rules(t, text))
			if _, err := next(token); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s, %s: NextPage: %v", name, what, err)
			}
			ss, err := g.Cursor.Stream(ada, &mooringv1.CursorServiceStreamRequest{Cursor: token})
			if err == nil {
				_, err = ss.Recv()
			}
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s, %s: Stream: %v", name, what, err)
			}
		}
		e.Replace(rules(t,
			wide+
				`@id("more") permit (principal, action == Action::"Find", resource in Database::"other");`))
		if token, err = next(token); err != nil {
			t.Errorf("%s: under other rules that permit it: %v", name, err)
		}
		e.Replace(rules(t, `permit (principal, action, resource == Collection::"d.other");`))
		if _, err := g.Cursor.CloseCursor(ada,
			&mooringv1.CloseCursorRequest{Cursor: token}); err != nil {
			t.Errorf("%s: CloseCursor: %v", name, err)
		}
		g.Idle(0)
	}
}
