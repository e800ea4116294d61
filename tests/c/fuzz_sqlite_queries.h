/* Written by tests/fuzz/sqlite_seeds.py: what flopscope asks of the databases of the corpus. */
/* clang-format off */
static const fs_query asked[] = {
    {FS_ROW_STRING,
     "SELECT t.\"id\", t.\"value\" FROM \"StringIds\" AS t",
     NULL, 0, 0, 2, {
      FS_CELL_ID, FS_CELL_NAME}, 0, 0, {0}},
    {FS_ROW_DOMAIN,
     "SELECT t.\"text\", t.\"textId\", t.\"domainId\", t.\"globalTid\" >> 24 & 16777215 FROM "
     "\"NVTX_EVENTS\" AS t WHERE (t.\"eventType\" = 75)",
     NULL, 0, 0, 4, {
      FS_CELL_TEXT, FS_CELL_NAME, FS_CELL_DOMAIN, FS_CELL_PROCESS}, 0, 0, {0}},
    {FS_ROW_CALL,
     "SELECT t.\"start\", t.\"end\", t.\"globalTid\" >> 24 & 16777215, t.\"globalTid\" & 16777215, "
     "t.\"nameId\", t.\"correlationId\" FROM \"CUPTI_ACTIVITY_KIND_RUNTIME\" AS t",
     NULL, 0, 0, 6, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_NAME, FS_CELL_CORRELATION}, 0, 0, {0}},
    {FS_ROW_RANGE,
     "SELECT t.\"start\", t.\"end\", t.\"globalTid\" >> 24 & 16777215, t.\"globalTid\" & 16777215, "
     "t.\"text\", t.\"textId\", t.\"eventType\", t.\"domainId\", t.\"endGlobalTid\" & 16777215 FROM "
     "\"NVTX_EVENTS\" AS t",
     NULL, 0, 0, 9, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_TEXT, FS_CELL_NAME, FS_CELL_TYPE, FS_CELL_DOMAIN,
      FS_CELL_END_THREAD}, 0, 0, {0}},
    {FS_ROW_KERNEL,
     "SELECT t.\"start\", t.\"end\", t.\"deviceId\", t.\"globalPid\" >> 24 & 16777215, t.\"streamId\", "
     "t.\"contextId\", t.\"correlationId\", t.\"graphNodeId\", t.\"graphId\", t.\"demangledName\", "
     "t.\"registersPerThread\", t.\"staticSharedMemory\", t.\"dynamicSharedMemory\", t.\"gridX\", "
     "t.\"gridY\", t.\"gridZ\", t.\"blockX\", t.\"blockY\", t.\"blockZ\", t.\"clusterX\", t.\"clusterY\", "
     "t.\"clusterZ\" FROM \"CUPTI_ACTIVITY_KIND_KERNEL\" AS t",
     NULL, 0, 0, 22, {
      FS_CELL_START, FS_CELL_END, FS_CELL_DEVICE, FS_CELL_PROCESS,
      FS_CELL_STREAM, FS_CELL_CONTEXT, FS_CELL_CORRELATION,
      FS_CELL_GRAPH_NODE, FS_CELL_GRAPH, FS_CELL_NAME, FS_CELL_REGISTERS,
      FS_CELL_STATIC_SHARED, FS_CELL_DYNAMIC_SHARED, FS_CELL_GRID_X,
      FS_CELL_GRID_Y, FS_CELL_GRID_Z, FS_CELL_BLOCK_X, FS_CELL_BLOCK_Y,
      FS_CELL_BLOCK_Z, FS_CELL_CLUSTER_X, FS_CELL_CLUSTER_Y,
      FS_CELL_CLUSTER_Z}, 0, 0, {0}},
    {FS_ROW_COPY,
     "SELECT t.\"start\", t.\"end\", t.\"deviceId\", t.\"globalPid\" >> 24 & 16777215, t.\"streamId\", "
     "t.\"contextId\", t.\"correlationId\", t.\"graphNodeId\", t.\"bytes\", t.\"copyKind\", t.\"srcKind\", "
     "t.\"dstKind\" FROM \"CUPTI_ACTIVITY_KIND_MEMCPY\" AS t",
     NULL, 0, 0, 12, {
      FS_CELL_START, FS_CELL_END, FS_CELL_DEVICE, FS_CELL_PROCESS,
      FS_CELL_STREAM, FS_CELL_CONTEXT, FS_CELL_CORRELATION,
      FS_CELL_GRAPH_NODE, FS_CELL_BYTES, FS_CELL_COPY_KIND, FS_CELL_FROM,
      FS_CELL_TO}, 0, 0, {0}},
    {FS_ROW_FILL,
     "SELECT t.\"start\", t.\"end\", t.\"deviceId\", t.\"globalPid\" >> 24 & 16777215, t.\"streamId\", "
     "t.\"contextId\", t.\"correlationId\", t.\"graphNodeId\", t.\"bytes\", t.\"memKind\" FROM "
     "\"CUPTI_ACTIVITY_KIND_MEMSET\" AS t",
     NULL, 0, 0, 10, {
      FS_CELL_START, FS_CELL_END, FS_CELL_DEVICE, FS_CELL_PROCESS,
      FS_CELL_STREAM, FS_CELL_CONTEXT, FS_CELL_CORRELATION,
      FS_CELL_GRAPH_NODE, FS_CELL_BYTES, FS_CELL_FROM}, 0, 0, {0}},
    {FS_ROW_SYNC,
     "SELECT t.\"start\", t.\"end\", t.\"deviceId\", t.\"globalPid\" >> 24 & 16777215, t.\"streamId\", "
     "t.\"contextId\", t.\"correlationId\", t.\"syncType\" FROM \"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION\" "
     "AS t",
     NULL, 0, 0, 8, {
      FS_CELL_START, FS_CELL_END, FS_CELL_DEVICE, FS_CELL_PROCESS,
      FS_CELL_STREAM, FS_CELL_CONTEXT, FS_CELL_CORRELATION, FS_CELL_TYPE}, 0, 0, {0}},
    {FS_ROW_NODE,
     "SELECT t.\"start\", t.\"end\", t.\"globalTid\" >> 24 & 16777215, t.\"globalTid\" & 16777215, "
     "t.\"graphNodeId\", t.\"originalGraphNodeId\" FROM \"CUDA_GRAPH_NODE_EVENTS\" AS t",
     NULL, 0, 0, 6, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_GRAPH_NODE, FS_CELL_ORIGINAL}, 0, 0, {0}},
    {FS_ROW_FIELD,
     "SELECT t.\"name\", t.\"type\", t.\"domainId\", t.\"schemaId\", t.\"offset\" FROM "
     "\"NVTX_PAYLOAD_SCHEMA_ENTRIES\" AS t",
     NULL, 0, 0, 5, {
      FS_CELL_NAME, FS_CELL_TYPE, FS_CELL_DOMAIN, FS_CELL_ID, FS_CELL_VALUE}, 0, 0, {0}},
    {FS_ROW_RANGE,
     "SELECT t.\"start\", t.\"end\", t.\"globalTid\" >> 24 & 16777215, t.\"globalTid\" & 16777215, "
     "t.\"text\", t.\"textId\", t.\"eventType\", t.\"domainId\", t.\"endGlobalTid\" & 16777215, "
     "t.\"binaryData\" FROM \"NVTX_EVENTS\" AS t",
     NULL, 0, 0, 10, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_TEXT, FS_CELL_NAME, FS_CELL_TYPE, FS_CELL_DOMAIN,
      FS_CELL_END_THREAD, FS_CELL_PAYLOAD}, 0, 0, {0}},
    {FS_ROW_OVERHEAD,
     "SELECT t.\"start\", t.\"end\", t.\"globalTid\" >> 24 & 16777215, t.\"globalTid\" & 16777215, "
     "t.\"nameId\" FROM \"PROFILER_OVERHEAD\" AS t",
     NULL, 0, 0, 5, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_NAME}, 0, 0, {0}},
    {FS_ROW_OVERHEAD,
     "SELECT t.\"start\", t.\"end\", t.\"globalTid\" >> 24 & 16777215, t.\"globalTid\" & 16777215, "
     "t.\"nameId\" FROM \"CUPTI_ACTIVITY_KIND_OVERHEAD\" AS t",
     NULL, 0, 0, 5, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_NAME}, 0, 0, {0}},
    {FS_ROW_MEMORY,
     "SELECT t.\"start\", t.\"bytes\", t.\"address\", t.\"deviceId\", t.\"correlationId\", t.\"globalPid\" "
     ">> 24 & 16777215, t.\"memoryOperationType\", t.\"memKind\" FROM \"CUDA_GPU_MEMORY_USAGE_EVENTS\""
     " AS t",
     NULL, 0, 0, 8, {
      FS_CELL_START, FS_CELL_BYTES, FS_CELL_ADDRESS, FS_CELL_DEVICE,
      FS_CELL_CORRELATION, FS_CELL_PROCESS, FS_CELL_TYPE, FS_CELL_FROM}, 0, 0, {0}},
    {FS_ROW_DEVICE,
     "SELECT t.\"pid\", t.\"cudaId\", t.\"gpuId\" FROM \"TARGET_INFO_CUDA_DEVICE\" AS t",
     NULL, 0, 0, 3, {
      FS_CELL_PROCESS, FS_CELL_DEVICE, FS_CELL_ID}, 0, 0, {0}},
    {FS_ROW_STRING,
     "SELECT t.\"id\", t.\"string\", 0 FROM \"rocpd_string\" AS t",
     NULL, 0, 0, 3, {
      FS_CELL_ID, FS_CELL_NAME, FS_CELL_SPACE}, 0, 0, {0}},
    {FS_ROW_STRING,
     "SELECT t.\"id\", t.\"display_name\", 1 FROM \"rocpd_info_kernel_symbol\" AS t",
     NULL, 0, 0, 3, {
      FS_CELL_ID, FS_CELL_NAME, FS_CELL_SPACE}, 0, 0, {0}},
    {FS_ROW_DEVICE,
     "SELECT t.\"id\", t.\"pid\", t.\"type_index\" FROM \"rocpd_info_agent\" AS t WHERE (t.\"type\" = "
     "'GPU')",
     NULL, 0, 0, 3, {
      FS_CELL_DEVICE, FS_CELL_PROCESS, FS_CELL_ID}, 0, 0, {0}},
    {FS_ROW_CALL,
     "SELECT t.\"start\", t.\"end\", t.\"pid\", t.\"tid\", t.\"name_id\", 0, e.\"stack_id\" FROM "
     "\"rocpd_region\" AS t LEFT JOIN \"rocpd_event\" AS e ON e.\"id\" = t.\"event_id\" WHERE "
     "(e.\"category_id\" IN (12, 13, 15, 16, 24))",
     NULL, 0, 0, 7, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_NAME, FS_CELL_SPACE, FS_CELL_CORRELATION}, 0, 0, {0}},
    {FS_ROW_RANGE,
     "SELECT t.\"start\", t.\"end\", t.\"pid\", t.\"tid\", t.\"name_id\", 0, e.\"extdata\" FROM "
     "\"rocpd_region\" AS t LEFT JOIN \"rocpd_event\" AS e ON e.\"id\" = t.\"event_id\" WHERE "
     "(e.\"category_id\" IN (40))",
     NULL, 0, 0, 7, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_NAME, FS_CELL_SPACE, FS_CELL_MESSAGE}, 0, 0, {0}},
    {FS_ROW_SPAN,
     "SELECT t.\"start\", t.\"end\", t.\"pid\", t.\"tid\", t.\"name_id\", 0 FROM \"rocpd_region\" AS t LEFT "
     "JOIN \"rocpd_event\" AS e ON e.\"id\" = t.\"event_id\" WHERE (e.\"category_id\" NOT IN (12, 13, "
     "15, 16, 24, 40) OR e.category_id IS NULL)",
     NULL, 0, 0, 6, {
      FS_CELL_START, FS_CELL_END, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_NAME, FS_CELL_SPACE}, 0, 0, {0}},
    {FS_ROW_KERNEL,
     "SELECT t.\"start\", t.\"end\", t.\"agent_id\", t.\"pid\", t.\"queue_id\", e.\"stack_id\", "
     "t.\"kernel_id\", 1, s.\"arch_vgpr_count\", t.\"group_segment_size\", t.\"workgroup_size_x\", "
     "t.\"workgroup_size_y\", t.\"workgroup_size_z\", (t.\"grid_size_x\" + t.\"workgroup_size_x\" - 1) /"
     " t.\"workgroup_size_x\", (t.\"grid_size_y\" + t.\"workgroup_size_y\" - 1) / "
     "t.\"workgroup_size_y\", (t.\"grid_size_z\" + t.\"workgroup_size_z\" - 1) / t.\"workgroup_size_z\" "
     "FROM \"rocpd_kernel_dispatch\" AS t LEFT JOIN \"rocpd_event\" AS e ON e.\"id\" = t.\"event_id\" "
     "LEFT JOIN \"rocpd_info_kernel_symbol\" AS s ON s.\"id\" = t.\"kernel_id\"",
     NULL, 0, 0, 16, {
      FS_CELL_START, FS_CELL_END, FS_CELL_DEVICE, FS_CELL_PROCESS,
      FS_CELL_STREAM, FS_CELL_CORRELATION, FS_CELL_NAME, FS_CELL_SPACE,
      FS_CELL_REGISTERS, FS_CELL_DYNAMIC_SHARED, FS_CELL_BLOCK_X,
      FS_CELL_BLOCK_Y, FS_CELL_BLOCK_Z, FS_CELL_GRID_X, FS_CELL_GRID_Y,
      FS_CELL_GRID_Z}, 0, 0, {0}},
    {FS_ROW_COPY,
     "SELECT t.\"start\", t.\"end\", CASE b.\"type\" WHEN 'CPU' THEN t.src_agent_id ELSE "
     "t.dst_agent_id END, t.\"pid\", t.\"queue_id\", e.\"stack_id\", t.\"size\", CASE a.\"type\" || b.type"
     " WHEN 'CPUGPU' THEN 1 WHEN 'GPUCPU' THEN 2 WHEN 'GPUGPU' THEN 8 WHEN 'CPUCPU' THEN 9 END, "
     "CASE b.\"type\" WHEN 'CPU' THEN 8 WHEN 'GPU' THEN 2 END, CASE a.\"type\" WHEN 'CPU' THEN 8 "
     "WHEN 'GPU' THEN 2 END FROM \"rocpd_memory_copy\" AS t LEFT JOIN \"rocpd_event\" AS e ON e.\"id\""
     " = t.\"event_id\" LEFT JOIN \"rocpd_info_agent\" AS a ON a.\"id\" = t.\"src_agent_id\" LEFT JOIN "
     "\"rocpd_info_agent\" AS b ON b.\"id\" = t.\"dst_agent_id\"",
     NULL, 0, 0, 10, {
      FS_CELL_START, FS_CELL_END, FS_CELL_DEVICE, FS_CELL_PROCESS,
      FS_CELL_STREAM, FS_CELL_CORRELATION, FS_CELL_BYTES, FS_CELL_COPY_KIND,
      FS_CELL_TO, FS_CELL_FROM}, 0, 0, {0}},
    {FS_ROW_MEMORY,
     "SELECT t.\"start\", t.\"address\", t.\"pid\", t.\"tid\", e.\"stack_id\", t.\"size\", CASE t.\"type\" "
     "WHEN 'ALLOC' THEN 0 WHEN 'FREE' THEN 1 END, t.\"agent_id\" FROM \"rocpd_memory_allocate\" AS t"
     " LEFT JOIN \"rocpd_event\" AS e ON e.\"id\" = t.\"event_id\" LEFT JOIN \"rocpd_info_agent\" AS a "
     "ON a.\"id\" = t.\"agent_id\" WHERE (a.\"type\" = 'GPU')",
     NULL, 0, 0, 8, {
      FS_CELL_START, FS_CELL_ADDRESS, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_CORRELATION, FS_CELL_BYTES, FS_CELL_TYPE, FS_CELL_DEVICE}, 0, 0, {0}},
    {FS_ROW_MEMORY,
     "SELECT t.\"start\", t.\"address\", t.\"pid\", t.\"tid\", e.\"stack_id\", t.\"size\", CASE t.\"type\" "
     "WHEN 'ALLOC' THEN 0 WHEN 'FREE' THEN 1 END FROM \"rocpd_memory_allocate\" AS t LEFT JOIN "
     "\"rocpd_event\" AS e ON e.\"id\" = t.\"event_id\" LEFT JOIN \"rocpd_info_agent\" AS a ON a.\"id\" = "
     "t.\"agent_id\" WHERE (a.\"type\" IS NOT 'GPU')",
     NULL, 0, 0, 7, {
      FS_CELL_START, FS_CELL_ADDRESS, FS_CELL_PROCESS, FS_CELL_THREAD,
      FS_CELL_CORRELATION, FS_CELL_BYTES, FS_CELL_TYPE}, 0, 0, {0}},
};
