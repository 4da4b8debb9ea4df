package rest

import (
	"net/http"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// annotated lists the files with the services whose HTTP annotations are routes. The templates are
// those of grpc-gateway. Its mux does not serve: it takes ~ and %7E for the same, reads "a:b" as a
// name where no verb b exists, and tries one pattern after the other.
var annotated = []protoreflect.FileDescriptor{
	mooringv1.File_mooring_v1_command_service_proto,
	mooringv1.File_mooring_v1_document_service_proto,
	mooringv1.File_mooring_v1_catalog_service_proto,
	mooringv1.File_mooring_v1_cursor_service_proto,
	mooringv1.File_mooring_v1_session_service_proto,
	mooringv1.File_mooring_v1_change_stream_service_proto,
	mooringv1.File_mooring_v1_transaction_service_proto,
	mooringv1.File_mooring_v1_deployment_service_proto,
}

// newRoutes returns the tree of all routes.
func newRoutes(plans planner) *node {
	root := newNode(nil, "")
	for _, file := range annotated {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if methods.Get(j).IsStreamingClient() {
					continue // see importRoute
				}
				for _, r := range annotatedRoutes(plans, methods.Get(j)) {
					root.add(r)
				}
			}
		}
	}
	root.add(importRoute(plans))
	root.add(ticketRoute(plans, mooringv1.ChangeStreamService_Watch_FullMethodName))
	for _, r := range resourceRoutes(plans) {
		root.add(r)
	}
	return root
}

// annotatedRoutes returns the routes of a method's HTTP annotation.
func annotatedRoutes(plans planner, m protoreflect.MethodDescriptor) []*route {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	var routes []*route
	for _, binding := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		r := newRoute(plans, m)
		r.build = (*call).buildRequest
		switch pattern := binding.GetPattern().(type) {
		case *annotations.HttpRule_Get:
			r.method, r.path, r.params = http.MethodGet, pattern.Get, queryParams
		case *annotations.HttpRule_Post:
			r.method, r.path, r.bodies = http.MethodPost, pattern.Post, jsonBodies
		default:
			panic("bug: rest: an HTTP annotation of another kind on " + r.rpc)
		}
		if r.bodies != nil && binding.GetBody() != "*" {
			panic("bug: rest: an HTTP annotation whose body is not * on " + r.rpc)
		}
		switch {
		case r.items.live && r.method == http.MethodGet:
			r.params = liveParams
		case r.items.changes && r.method == http.MethodGet:
			r.params = watchParams
		case r.reply.byName["documents"] != nil && r.reply.byName["cursor"] != nil && !r.stream:
			r.offers = offerPage
		}
		r.takeConditions()
		routes = append(routes, r)
	}
	return routes
}

// newRoute returns the route of a method, without its path and how its request is built.
func newRoute(plans planner, m protoreflect.MethodDescriptor) *route {
	r := &route{
		rpc:         "/" + string(m.Parent().FullName()) + "/" + string(m.Name()),
		stream:      m.IsStreamingServer(),
		request:     plans.plan(m.Input()),
		reply:       plans.plan(m.Output()),
		requestType: typeOf(m.Input()),
		replyType:   typeOf(m.Output()),
		offers:      offerSingle,
	}
	if r.stream {
		r.offers, r.items = offerStream, itemsOf(r.reply)
		if r.items.isQuery() {
			r.offers, r.own = offerRows, exportParams
		}
	}
	return r
}

// methodOf returns a method by the name that gRPC has for it, which this package has from the
// generated code.
func methodOf(file protoreflect.FileDescriptor, name string) protoreflect.MethodDescriptor {
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			if m := s.Methods().Get(j); name == "/"+string(s.FullName())+"/"+string(m.Name()) {
				return m
			}
		}
	}
	panic("bug: rest: no method " + name)
}

// typeOf returns the generated type of a message, which the program has for all of the API.
func typeOf(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic("bug: rest: " + err.Error())
	}
	return t
}
