/** The application of every session of `/harness/invoke`, whatever `harness_name` says (specification). */
export const HARNESS_APP = 'harness_agent';
