package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/policy/table"
	"github.com/mooringdb/mooring/service/spelling"
)

// testPolicy runs the command policy test.
func testPolicy(c call) error {
	t, p, err := table.Read(c.operands[0])
	if table.IsPolicy(err) {
		return &usageError{fmt.Sprintf("policy test: %s is a policy. FILE is a table of requests, "+
			"in YAML, which names the policy by its key policy: see docs/policy.md\nmooring "+
			"policy explain takes a policy", c.operands[0])}
	}
	if err != nil {
		return err
	}
	failures := t.Run(p)
	for _, failure := range failures {
		fmt.Fprintln(c.stdout, "FAIL", failure)
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d of %s failed", len(failures), render.Count(len(t.Tests), "test"))
	}
	fmt.Fprintf(c.stdout, "ok: %s\n", render.Count(len(t.Tests), "test"))
	return nil
}

func explainFlags(flags *pflag.FlagSet) {
	flags.String("principal", "", "`name` of the caller, such as key:shop; without it the caller "+
		"is not authenticated")
	flags.Var(&groupsFlag{}, "groups", "`names` of the caller's groups, such as "+
		"key:readers,key:auditors")
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
	who, err := principal(c.flags)
	if err != nil {
		return err
	}
	action := value("action")
	if err := checkAction(action); err != nil {
		return err
	}
	var on policy.Resource
	on.Database, on.Collection, _ = strings.Cut(value("on"), ".")
	d := p.Decide(who, action, on)
	if d.Rule != policy.NoRule {
		return explain(c.stdout, &d, p.Commandless(who))
	}
	fmt.Fprintln(c.stdout, "refused: no permit rule allows it")
	for _, near := range p.NearPermits(who, action, on) {
		fmt.Fprintf(c.stdout, "%s would allow it if %s\n", near.Rule, near.If)
	}
	if rule := policy.PermitFor(who, action, on); rule != "" {
		fmt.Fprintf(c.stdout, "this rule would allow it: %s\n", rule)
	}
	writeCommandless(c.stdout, p.Commandless(who))
	return nil
}

// principal returns the caller that the flags describe.
func principal(flags *pflag.FlagSet) (*policy.Principal, error) {
	name, claims := flags.Lookup("principal").Value.String(), flags.Lookup("claims").Value.String()
	if text, ok := entityID("Principal", name); ok {
		name = text
	}
	if name != "" && !hasKind(name) {
		return nil, withoutKind("--principal", name)
	}
	who := &policy.Principal{Name: name}
	if groups, ok := flags.Lookup("groups").Value.(*groupsFlag); ok {
		who.Groups = groups.names
	}
	for _, group := range who.Groups {
		if !hasKind(group) {
			return nil, withoutKind("--groups", group)
		}
	}
	if err := json.Unmarshal([]byte(claims), &who.Claims); err != nil {
		return nil, &usageError{"policy explain: --claims is not a JSON object"}
	}
	return who, nil
}

// kinds lists what the names of principals and of groups begin with: the kind of the credential.
var kinds = []string{"key:", "jwt:", "cert:"}

func hasKind(name string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool {
		return strings.HasPrefix(name, kind)
	})
}

func withoutKind(flag, name string) error {
	return &usageError{fmt.Sprintf("policy explain: %s %s does not begin with the kind of the "+
		"credential: write "+
		"key:%[2]s (of an API key), jwt:%[2]s (of a token) or cert:%[2]s (of a certificate)",
		flag, name)}
}

// entityID returns the id in the Cedar text of an entity, such as Group::"key:readers".
func entityID(kind, text string) (id string, ok bool) {
	text, ok = strings.CutPrefix(text, kind+"::")
	if !ok {
		return "", false
	}
	id, err := strconv.Unquote(text)
	return id, err == nil
}

// groupsFlag holds the value of --groups: names with commas between them, or one in Cedar's words.
type groupsFlag struct{ names []string }

// Set adds names.
func (g *groupsFlag) Set(text string) error {
	if id, ok := entityID("Group", text); ok {
		g.names = append(g.names, id)
		return nil
	}
	if text == "" {
		return nil
	}
	names, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return errors.New("write names with commas between them, such as key:readers,key:auditors")
	}
	g.names = append(g.names, names...)
	return nil
}

// String returns the names.
func (g *groupsFlag) String() string { return strings.Join(g.names, ",") }

// Type returns how help calls the value.
func (g *groupsFlag) Type() string { return "strings" }

// checkAction returns an error for a name that no action has.
func checkAction(name string) error {
	if policy.IsAction(name) {
		return nil
	}
	if name == "" {
		return &usageError{"policy explain: --action is missing: the name of an action, such as " +
			"Find; docs/policy.md lists them"}
	}
	problem := fmt.Sprintf("policy explain: --action: there is no action %q", name)
	if like := spelling.Nearest(name, slices.Values(policy.Actions())); like != "" {
		return &usageError{problem + ": did you mean " + like + "?"}
	}
	return &usageError{problem + ": docs/policy.md lists them"}
}

// explain writes a decision that rules have made.
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
	writeCommandless(w, commandless)
	return nil
}

func writeCommandless(w io.Writer, rule string) {
	if rule != "" {
		fmt.Fprintf(w, "no commands: %s forbids or limits the use of some collections\n", rule)
	}
}
