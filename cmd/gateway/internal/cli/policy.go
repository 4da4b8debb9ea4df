package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/policy/table"
)

// testPolicy runs the command policy test.
func testPolicy(c call) error {
	t, p, err := table.Read(c.operands[0])
	if err != nil {
		return err
	}
	failures := t.Run(p)
	for _, failure := range failures {
		fmt.Fprintln(c.stdout, "FAIL", failure)
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d of %d tests fail", len(failures), len(t.Tests))
	}
	fmt.Fprintf(c.stdout, "ok: %d tests\n", len(t.Tests))
	return nil
}

func explainFlags(flags *pflag.FlagSet) {
	flags.String("principal", "", "`name` of the caller, such as key:shop; without it the caller "+
		"is not authenticated")
	flags.StringSlice("groups", nil, "`names` of the caller's groups, such as key:readers")
	flags.String("claims", "{}", "claims of the caller, a `JSON` object")
	flags.String("action", "", "`name` of what the caller does, such as Find")
	flags.String("on", "", "`database.collection` or database; without it the deployment")
}

// explainPolicy runs the command policy explain.
func explainPolicy(c call) error {
	text, err := os.ReadFile(c.operands[0])
	if err != nil {
		return err
	}
	p, err := policy.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.operands[0], err)
	}
	value := func(name string) string { return c.flags.Lookup(name).Value.String() }
	groups, err := c.flags.GetStringSlice("groups")
	if err != nil {
		return err
	}
	who := &policy.Principal{Name: value("principal"), Groups: groups}
	if err := json.Unmarshal([]byte(value("claims")), &who.Claims); err != nil {
		return &usageError{"policy explain: --claims is not a JSON object"}
	}
	if !policy.IsAction(value("action")) {
		return &usageError{"policy explain: --action is not the name of an action; see " +
			"docs/policy.md"}
	}
	var on policy.Resource
	on.Database, on.Collection, _ = strings.Cut(value("on"), ".")
	d := p.Decide(who, value("action"), on)
	return explain(c.stdout, &d, p.Commandless(who))
}

func explain(w io.Writer, d *policy.Decision, commandless string) error {
	verdict := "refused"
	if d.Allowed {
		verdict = "allowed"
	}
	fmt.Fprintf(w, "%s by %s\n", verdict, d.Rule)
	for _, line := range []struct {
		name string
		doc  bson.Raw
	}{{"filter", d.Filter}, {"forced", d.Forced}} {
		if line.doc == nil {
			continue
		}
		text, err := extjson.Append(nil, line.doc, extjson.Relaxed)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%-9s %s\n", line.name, text)
	}
	for _, line := range []struct {
		name  string
		words []string
	}{
		{"hidden", d.Hidden},
		{"readonly", d.ReadOnly},
		{"commands", d.Commands},
		{"options", d.Options},
	} {
		if len(line.words) > 0 {
			fmt.Fprintf(w, "%-9s %s\n", line.name, strings.Join(line.words, ", "))
		}
	}
	if commandless != "" {
		fmt.Fprintf(w, "no commands: %s forbids or limits the use of some collections\n",
			commandless)
	}
	return nil
}
