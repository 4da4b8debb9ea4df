// Package table runs tables of requests against a policy: who asks for what, and what the policy
// does with it. The tables are YAML files, see docs/policy.md.
package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/policy"
)

// Table holds the rows of a file, and the policy that they are about.
type Table struct {
	// Policy is the path of the policy file, from the directory of the table.
	Policy string `yaml:"policy"`
	// JavaScript is as in policy.Config.
	JavaScript bool  `yaml:"javaScript"`
	Tests      []Row `yaml:"tests"`
}

// Row holds one request and what is expected.
type Row struct {
	Name      string         `yaml:"name"`
	Principal string         `yaml:"principal"`
	Groups    []string       `yaml:"groups"`
	Claims    map[string]any `yaml:"claims"`
	// Call is the service and the method: DocumentService/Find.
	Call    string    `yaml:"call"`
	Request yaml.Node `yaml:"request"`
	// Expect is allow or deny.
	Expect string `yaml:"expect"`
	// Rule is the id of the rule that decides; empty: any.
	Rule string `yaml:"rule"`
	// Because is a part of the text that the client gets; empty: any.
	Because string `yaml:"because"`
	// Becomes has fields of the request as the policy has changed them.
	Becomes yaml.Node `yaml:"becomes"`
}

var errPolicy = errors.New("the file is a policy, not a table of requests")

// IsPolicy reports whether an error of Read says that the file has a policy instead of a table.
func IsPolicy(err error) bool { return errors.Is(err, errPolicy) }

// Read reads a table and its policy.
func Read(path string) (*Table, *policy.Policy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var t Table
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&t); err != nil {
		if _, wrong := policy.Parse(text); wrong == nil || filepath.Ext(path) == ".cedar" {
			err = errPolicy
		}
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(t.Tests) == 0 {
		return nil, nil, fmt.Errorf("%s: the table has no tests", path)
	}
	if t.Policy == "" {
		return nil, nil, fmt.Errorf("%s: the key policy is missing: write policy: FILE", path)
	}
	file := t.Policy
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(path), file)
	}
	if text, err = os.ReadFile(file); err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return &t, p, nil
}

// Run runs all rows, and looks for rules that do not go together for their principals. It returns
// one error for each row that fails and each such set of rules; nil if there is none.
func (t *Table) Run(p *policy.Policy) (failures []error) {
	e := policy.NewEnforcer(policy.Config{Policy: p, JavaScript: t.JavaScript})
	for i := range t.Tests {
		row := &t.Tests[i]
		if err := row.run(e); err != nil {
			name := row.Name
			if name == "" {
				name = fmt.Sprintf("test %d", i+1)
			}
			failures = append(failures, fmt.Errorf("%s: %w", name, err))
		}
	}
	return append(failures, t.conflicts(p)...)
}

// conflicts returns an error for each set of rules that do not go together for a principal of the
// rows.
func (t *Table) conflicts(p *policy.Policy) (failures []error) {
	seen := map[string]bool{}
	for i := range t.Tests {
		row := &t.Tests[i]
		who := &policy.Principal{Name: row.Principal, Groups: row.Groups, Claims: row.Claims}
		var on []policy.Resource
		if request, err := NewRequest(row.Call, &row.Request); err == nil {
			on = append(on, policy.ResourceOf(request))
		}
		for _, c := range p.Conflicts(who, on) {
			if !seen[c.Rules] {
				seen[c.Rules] = true
				failures = append(failures, fmt.Errorf("%s, groups %v: %s",
					cmp.Or(row.Principal, "anonymous"), row.Groups, c))
			}
		}
	}
	return failures
}

// identity returns who makes the request; nil: a client that is not authenticated.
func (r *Row) identity() *caller.Identity {
	if r.Principal == "" {
		return nil
	}
	return &caller.Identity{Principal: r.Principal, Groups: r.Groups, Claims: r.Claims}
}

func (r *Row) run(e *policy.Enforcer) error {
	request, err := NewRequest(r.Call, &r.Request)
	if err != nil {
		return err
	}
	x, err := e.Explain(context.Background(), r.identity(), "/mooring.v1."+r.Call, request)
	switch {
	case err != nil:
		return err
	case r.Expect == "deny" && x.Refusal == nil:
		return errors.New("the request is allowed")
	case r.Expect == "allow" && x.Rule == policy.NoRule:
		return fmt.Errorf("no permit rule allows it: %w", x.Refusal)
	case r.Expect == "allow" && x.Refusal != nil:
		return fmt.Errorf("%s refuses the request: %w", x.Rule, x.Refusal)
	case r.Expect != "allow" && r.Expect != "deny":
		return fmt.Errorf("expect is %q; it must be allow or deny", r.Expect)
	case r.Rule != "" && r.Rule != x.Rule:
		return fmt.Errorf("%s decides, not %s", x.Rule, r.Rule)
	case x.Refusal == nil:
		return r.compare(request)
	case !strings.Contains(x.Refusal.Error(), r.Because):
		return fmt.Errorf("the client gets this: %w", x.Refusal)
	}
	return nil
}

// compare compares the fields in Becomes with those of the request.
func (r *Row) compare(got proto.Message) error {
	if r.Becomes.IsZero() {
		return nil
	}
	want, err := NewRequest(r.Call, &r.Becomes)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(r.Becomes.Content); i += 2 {
		name := r.Becomes.Content[i].Value
		g, err := show(got, name)
		if err != nil {
			return err
		}
		w, err := show(want, name)
		if err != nil {
			return err
		}
		if g != w {
			return fmt.Errorf("%s becomes %s, not %s", name, g, w)
		}
	}
	return nil
}
