// Package rest serves the API as REST, as one of the APIs of package front. It makes its calls on
// a gRPC connection within the process, so REST and gRPC calls reach the same handlers through the
// same interceptors.
//
// Routes and methods come from the HTTP annotations in proto/, whose templates are those of
// grpc-gateway. This package builds the requests from their descriptors, and implements what
// clients see: paths, negotiation, JSON with documents inline, pages and streams, and errors in one
// shape on every path. It decides nothing about documents and knows no database.
package rest

import "google.golang.org/protobuf/reflect/protoreflect"

type (
	fieldDescriptor   = protoreflect.FieldDescriptor
	message           = protoreflect.Message
	messageDescriptor = protoreflect.MessageDescriptor
)
