package policy

import (
	"maps"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	shape "github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
)

// resourcesOf returns the types of what an action is decided on; nil: it is not decided itself. A
// request that can be without a collection is then decided on the database. A change stream can be
// without both.
func resourcesOf(a *method.Method) []shape.EntityTypeRef {
	switch a.Scope {
	case mooringv1.Method_SCOPE_REQUESTS, mooringv1.Method_SCOPE_WRITES:
		return nil
	case mooringv1.Method_SCOPE_DATABASE, mooringv1.Method_SCOPE_COMMAND:
		return []shape.EntityTypeRef{"Database"}
	case mooringv1.Method_SCOPE_DEPLOYMENT, mooringv1.Method_SCOPE_OPENED:
		return []shape.EntityTypeRef{"Deployment"}
	default:
	}
	on := []shape.EntityTypeRef{"Collection"}
	if a.Descriptor.Input().Fields().ByName("collection").HasPresence() {
		on = append(on, "Database")
		if a.Group == mooringv1.Method_GROUP_WATCH {
			on = append(on, "Deployment")
		}
	}
	return on
}

// schemaOf returns what Cedar may take for granted in a rule. The claims of credentials have no
// schema: they have the types that the rule uses them as, and each may be missing.
func schemaOf(claims *claim) (*resolved.Schema, error) {
	text := shape.Attribute{Type: shape.String()}
	s := &shape.Schema{
		Entities: shape.Entities{
			"Group": {}, "Deployment": {},
			"Principal": {ParentTypes: []shape.EntityTypeRef{"Group"}, Shape: shape.RecordType{
				"kind": text, "name": text, "claims": {Type: claims.shape()},
			}},
			"Database": {
				ParentTypes: []shape.EntityTypeRef{"Deployment"},
				Shape:       shape.RecordType{"database": text},
			},
			"Collection": {
				ParentTypes: []shape.EntityTypeRef{"Database"},
				Shape:       shape.RecordType{"database": text, "collection": text},
			},
		},
		Actions: shape.Actions{},
	}
	for _, a := range method.All() {
		group := groupOf(a).ID
		one := shape.Action{Parents: []shape.ParentRef{shape.ParentRefFromID(group)}}
		if on := resourcesOf(a); on != nil {
			one.AppliesTo = &shape.AppliesTo{
				Principals: []shape.EntityTypeRef{"Principal"}, Resources: on,
				Context: shape.RecordType{},
			}
		}
		s.Actions[group] = shape.Action{}
		s.Actions[cedar.String(a.Action)] = one
	}
	return schema.NewSchemaFromAST(s).Resolve()
}

// claim holds what a rule does with a claim, or with all of them.
type claim struct {
	used   shape.IsType // nil: nothing tells its type
	fields map[cedar.String]*claim
	// twice is true if the rule uses the claim as values of two types.
	twice bool
}

// shape returns the type that a claim has in the schema: a text, if nothing tells another.
func (c *claim) shape() shape.IsType {
	switch {
	case c.fields != nil:
		record := shape.RecordType{}
		for name, field := range c.fields {
			record[name] = shape.Attribute{Type: field.shape(), Optional: true}
		}
		return record
	case c.used == nil:
		return shape.String()
	}
	return c.used
}

// conflict returns the path of a claim that is used as values of two types; "": there is none.
func (c *claim) conflict() string {
	if c.twice || c.used != nil && c.fields != nil {
		return "claims"
	}
	for name, field := range maps.All(c.fields) {
		if path := field.conflict(); path != "" {
			return "claims." + string(name) + path[len("claims"):]
		}
	}
	return ""
}

// claimsOf returns the claims that a rule uses.
func claimsOf(p *ast.Policy) *claim {
	all := &claim{fields: map[cedar.String]*claim{}}
	for _, condition := range p.Conditions {
		all.all(shape.Bool(), condition.Body)
		ast.Inspect(ast.NewNode(condition.Body), func(n ast.IsNode) bool {
			all.note(n)
			return true
		})
	}
	return all
}

// note notes which types an expression demands of the claims in it.
func (c *claim) note(n ast.IsNode) {
	switch n := n.(type) {
	case ast.NodeTypeEquals:
		c.same(n.Left, n.Right)
	case ast.NodeTypeNotEquals:
		c.same(n.Left, n.Right)
	case ast.NodeTypeLessThan:
		c.all(shape.Long(), n.Left, n.Right)
	case ast.NodeTypeLessThanOrEqual:
		c.all(shape.Long(), n.Left, n.Right)
	case ast.NodeTypeGreaterThan:
		c.all(shape.Long(), n.Left, n.Right)
	case ast.NodeTypeGreaterThanOrEqual:
		c.all(shape.Long(), n.Left, n.Right)
	case ast.NodeTypeContains:
		c.contains(n.Left, n.Right)
	case ast.NodeTypeContainsAll:
		c.sets(n.Left, n.Right)
	case ast.NodeTypeContainsAny:
		c.sets(n.Left, n.Right)
	case ast.NodeTypeIsEmpty:
		c.all(shape.Set(shape.String()), n.Arg)
	case ast.NodeTypeNot:
		c.all(shape.Bool(), n.Arg)
	case ast.NodeTypeAnd:
		c.all(shape.Bool(), n.Left, n.Right)
	case ast.NodeTypeOr:
		c.all(shape.Bool(), n.Left, n.Right)
	case ast.NodeTypeIfThenElse:
		c.all(shape.Bool(), n.If)
	case ast.NodeTypeLike:
		c.all(shape.String(), n.Arg)
	case ast.NodeTypeHas:
		c.field(n.Arg, n.Value)
	case ast.NodeTypeAccess:
		c.field(n.Arg, n.Value)
	}
}

// find returns the claim that an expression stands for; nil: it is not a claim.
func (c *claim) find(n ast.IsNode) *claim {
	access, ok := n.(ast.NodeTypeAccess)
	if !ok {
		return nil
	}
	if v, ok := access.Arg.(ast.NodeTypeVariable); ok {
		if v.Name == "principal" && access.Value == "claims" {
			return c
		}
		return nil
	}
	return c.field(access.Arg, access.Value)
}

// field returns the field of a claim that is an object; nil: the expression is not a claim.
func (c *claim) field(n ast.IsNode, name cedar.String) *claim {
	object := c.find(n)
	if object == nil {
		return nil
	}
	if object.fields == nil {
		object.fields = map[cedar.String]*claim{}
	}
	if object.fields[name] == nil {
		object.fields[name] = &claim{}
	}
	return object.fields[name]
}

// all notes that expressions have a type.
func (c *claim) all(of shape.IsType, nodes ...ast.IsNode) {
	for _, n := range nodes {
		one := c.find(n)
		if one == nil || one == c || of == nil {
			continue
		}
		one.twice = one.twice || one.used != nil && one.used != of
		one.used = of
	}
}

// same notes that two expressions have the same type.
func (c *claim) same(a, b ast.IsNode) {
	c.all(literal(b), a)
	c.all(literal(a), b)
}

// contains notes that an expression is in another, which is a set.
func (c *claim) contains(set, item ast.IsNode) {
	if of := literal(item); of != nil {
		c.all(shape.Set(of), set)
	} else {
		c.all(shape.Set(shape.String()), set)
	}
	if of, ok := literal(set).(shape.SetType); ok {
		c.all(of.Element, item)
	}
}

// sets notes that two expressions are sets of the same type.
func (c *claim) sets(a, b ast.IsNode) {
	c.same(a, b)
	for _, n := range []ast.IsNode{a, b} {
		if one := c.find(n); one != nil && one.used == nil {
			one.used = shape.Set(shape.String())
		}
	}
}

// literal returns the type of an expression that is a value; nil: it is another expression.
func literal(n ast.IsNode) shape.IsType {
	switch n := n.(type) {
	case ast.NodeValue:
		switch n.Value.(type) {
		case cedar.String:
			return shape.String()
		case cedar.Long:
			return shape.Long()
		case cedar.Boolean:
			return shape.Bool()
		}
	case ast.NodeTypeSet:
		for _, item := range n.Elements {
			if of := literal(item); of != nil {
				return shape.Set(of)
			}
		}
	}
	return nil
}
