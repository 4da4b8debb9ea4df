import type { OperationId } from './index.js';

/** The method and the path of each operation. */
export declare const operations: Record<OperationId, [method: string, path: string]>;
