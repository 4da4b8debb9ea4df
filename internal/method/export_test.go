package method

import "google.golang.org/protobuf/reflect/protoreflect"

// Read returns the error with which the table of the methods in a file is made.
func Read(file protoreflect.FileDescriptor) error {
	_, err := read([]protoreflect.FileDescriptor{file})
	return err
}
